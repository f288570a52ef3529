"""A user's mistake: its text is the one line that he reads."""


class Refusal(Exception):
    pass
