"""Stands in for tqdm where no other library needs it: no bars."""


class tqdm:
    def __init__(self, items=(), *args, **kwargs):
        self.items = items

    def __iter__(self):
        return iter(self.items)

    def update(self, *args):
        return None

    set_description = set_postfix = close = update
