"""What everything rests on; knows no kernel and no program."""
