"""What journals of a run say to a CI service: annotations, a summary, SARIF and JUnit. Nothing is judged or imported here."""
