"""A launcher that is not trusted, judged by bytes: an executor launches for the judge, and asks the candidate's own process."""
