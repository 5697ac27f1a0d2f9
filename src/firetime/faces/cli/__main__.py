"""``python -m firetime.faces.cli`` is ``firetime``: so the processes of ``--processes`` are started."""

from firetime.faces.cli import main

if __name__ == "__main__":
    main()
