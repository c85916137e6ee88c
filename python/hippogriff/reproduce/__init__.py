"""The papers' experiments: measured by `hippogriff reproduce`, shown in a report."""
