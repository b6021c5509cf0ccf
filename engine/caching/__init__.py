"""What is kept or skipped: exact values shared across variants, and steps inside one run."""
