"""The papers' experiments on this machine: measured by `hippogriff reproduce`, shown in a report."""
