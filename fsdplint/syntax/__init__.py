"""Questions about syntax trees: names, bindings, imports, and the layout of the text."""
