//! What a wrapper of `Metadata` leaves to what it wraps.

/// The methods of these names, which ask this field. The types of their signatures must be in scope.
macro_rules! passes_on {
    ($inner:ident: $($method:ident)*) => { $(passes_on!(@$method $inner);)* };
    (@grant $inner:ident) => {
        fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
            self.$inner.grant(ttl)
        }
    };
    (@keep_alive $inner:ident) => {
        fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
            self.$inner.keep_alive(lease)
        }
    };
    (@revoke $inner:ident) => {
        fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
            self.$inner.revoke(lease)
        }
    };
    (@wait $inner:ident) => {
        fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
            self.$inner.wait(prefix, revision, at_most)
        }
    };
    (@place $inner:ident) => {
        fn place(&self) -> String {
            self.$inner.place()
        }
    };
}
