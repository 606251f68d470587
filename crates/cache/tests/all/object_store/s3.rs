//! A client of a real S3 server.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;

use crate::versitygw::Server;

impl Server {
    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        // Only the first provider of a process counts, and any will do: nothing here is encrypted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store = AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_bucket_name("bucket")
            .with_region("us-east-1")
            .with_access_key_id("test")
            .with_secret_access_key("testtest")
            .build();
        Arc::new(store.unwrap())
    }
}
