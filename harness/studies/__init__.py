"""What is measured once and written up."""
