//! What scenarios have in common.
