//! What several stories share: loads on one device, and small worlds.

pub(crate) mod device;
pub(crate) mod world;
