//! Addresses to listen at.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use percolator_observe::metrics;

/// The port at which feeds are served unless told otherwise.
pub(crate) const FEEDS_PORT: u16 = 4433;

/// Where feeds are served: HOST:PORT, a host, or a port.
pub(crate) fn of_feeds(text: &str) -> Result<SocketAddr, String> {
    address(text, FEEDS_PORT)
}

/// Where metrics are published: HOST:PORT, a host, or a port.
pub(crate) fn of_metrics(text: &str) -> Result<SocketAddr, String> {
    address(text, metrics::PORT)
}

fn address(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    if let Ok(host) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(host, default_port));
    }
    let found = match text.rsplit_once(':') {
        Some(_) => text.to_socket_addrs(),
        None => (text, default_port).to_socket_addrs(),
    };
    let refused = |why: String| {
        format!("{why}; give HOST:PORT, a host, or a port, for example 127.0.0.1:{default_port}")
    };
    found
        .map_err(|error| refused(error.to_string()))?
        .next()
        .ok_or_else(|| refused("no such host".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_a_port_or_both() {
        for (text, due) in [
            ("9000", "127.0.0.1:9000"),
            ("0.0.0.0", "0.0.0.0:9464"),
            ("0.0.0.0:1234", "0.0.0.0:1234"),
            ("::1", "[::1]:9464"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(of_metrics(text), Ok(due.parse().unwrap()), "{text}");
            assert_eq!(of_feeds(text), Ok(due.replace("9464", "4433").parse().unwrap()), "{text}");
        }
        for text in ["", "127.0.0.1:65536", "127.0.0.1:x", "/tmp/net.prototxt"] {
            assert!(of_metrics(text).unwrap_err().contains("give HOST:PORT"), "{text}");
        }
    }
}
