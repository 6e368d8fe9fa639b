"""The scripts that wrote the committed files of data/; run by hand, once in a while."""
