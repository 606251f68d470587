//! Stub while the workspace is laid out.
