"""How times and verdicts changed from run to run."""

COMMANDS = {"history": "Show how times and verdicts of kernels changed from run to run."}
GROUP = "Compare and CI"
