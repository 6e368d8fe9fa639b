"""The data: where they are and whose (store), the download (fetch), and the stand-in."""
