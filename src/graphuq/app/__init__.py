"""User files in; reports and result folders out: the command line and its implementation."""
