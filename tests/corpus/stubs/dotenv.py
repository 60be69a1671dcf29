"""Stands in for python-dotenv."""


def load_dotenv(*args, **kwargs):
    return False
