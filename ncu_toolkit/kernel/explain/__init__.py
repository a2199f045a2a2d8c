"""What every output says of a launch, computed once: verdict, bars, waiting, lines, advice."""
