"""The charts, one file a family. list.py is the table of them: a new chart is one function and one line there."""
