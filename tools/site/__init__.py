"""The course as a web site, in English and Chinese, made from the stored notebooks."""
