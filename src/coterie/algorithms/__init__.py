"""One file per algorithm. To add one: write the file, add its name here."""
