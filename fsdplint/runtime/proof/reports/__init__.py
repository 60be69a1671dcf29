"""A proof for people and programs.

`text` is for a terminal, `data` is JSON, `page` one HTML file with the pictures of `plots` and the
lines of `changes`, `markdown` for a pull request.
"""
