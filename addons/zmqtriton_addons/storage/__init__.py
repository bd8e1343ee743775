"""Model repositories in object stores (s3://, gs://, as://): read, and copied to this machine."""
