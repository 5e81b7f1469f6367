project = "sample"
