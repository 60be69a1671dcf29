"""The reports of a proof.

`text` writes for a terminal, `data` JSON, `markdown` for a pull request, and `page` one HTML file
with the plots of `plots` and the diff of `changes`. `simulated` writes the reports of a simulation.
"""
