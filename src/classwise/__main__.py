"""``classwise``, and ``python -m classwise``: listens to signals before the long imports of the command line."""

from classwise.core.stopping import stopping


def main() -> None:
    """Run the command line."""
    with stopping():
        from classwise.cli.main import main as command_line

        command_line()


if __name__ == "__main__":
    main()
