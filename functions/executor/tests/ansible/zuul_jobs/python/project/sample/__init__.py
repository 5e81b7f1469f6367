NAME = "sample"
