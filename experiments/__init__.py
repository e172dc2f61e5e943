"""The paper, figure by figure and table by table: `python -m experiments --all --quick`, see `experiment.py`."""
