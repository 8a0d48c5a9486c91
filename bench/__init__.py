"""How fast it is, against what the machine allows: every figure beside a floor of the same run."""
