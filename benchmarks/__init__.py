"""Throughput of the optimised decoder beside other engines; `tox -e bench`, docs/results/throughput.md. Not shipped."""
