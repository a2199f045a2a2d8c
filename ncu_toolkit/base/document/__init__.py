"""What is shown, as values that every writer takes."""
