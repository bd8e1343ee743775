"""Model repositories in stores (s3://, gs://, as://, hf://, oci://): read, and copied here."""
