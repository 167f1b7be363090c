use std::path::Path;

use proptest::prelude::*;

use super::*;

fn tcp(host: &str, port: u16, export: &str) -> Address {
    let place = Place::Tcp { host: host.into(), port };
    Address { place, export: export.into(), tls: None }
}

/// The table of doc/uri.md.
#[test]
fn the_specification_s_examples() {
    for (text, export) in [
        ("nbd://example.com/disk", "disk"),
        ("nbd://example.com/", ""),
        ("nbd://example.com", ""),
        ("nbd://example.com//disk", "/disk"),
        ("nbd://example.com/hello%20world", "hello world"),
    ] {
        assert_eq!(Address::parse(text).unwrap(), tcp("example.com", DEFAULT_PORT, export));
    }
    let unix = Address::parse("nbd+unix:///disk?socket=sock").unwrap();
    assert_eq!((unix.export.as_str(), unix.place), ("disk", Place::Unix("sock".into())));
}

#[test]
fn hosts_and_ports() {
    assert_eq!(Address::parse("nbd://[::1]:99/a").unwrap(), tcp("::1", 99, "a"));
    assert_eq!(Address::parse("nbd://[fe80::1]").unwrap(), tcp("fe80::1", DEFAULT_PORT, ""));
    assert_eq!(Address::parse("nbd://10.0.0.1:/a").unwrap(), tcp("10.0.0.1", DEFAULT_PORT, "a"));
    assert_eq!(tcp("::1", 99, "a b").to_string(), "nbd://[::1]:99/a%20b");
}

#[test]
fn wishes_for_tls() {
    let text = "nbds+unix:///a?socket=/s&tls-certificates=/etc/ca%20s.pem&tls-hostname=h";
    let address = Address::parse(text).unwrap();
    let tls = address.tls.as_ref().unwrap();
    assert_eq!(tls.authorities.as_deref(), Some(Path::new("/etc/ca s.pem")));
    assert_eq!(tls.hostname.as_deref(), Some("h"));
    assert_eq!(address.to_string(), text);
    assert!(Address::parse("nbds://h?tls-type=x509&tls-verify-peer=1").unwrap().tls.is_some());
}

#[test]
fn every_mistake_has_its_error() {
    use AddressError as E;
    let parameter = |text: &str| E::Parameter(text.into());
    for (text, error) in [
        ("http://h/", E::Scheme("http://h/".into())),
        ("disk.img", E::Scheme("disk.img".into())),
        ("nbd:///a", E::NoHost),
        ("nbd://h%/a", E::Host("h%".into())),
        ("nbd://h/%4", E::Percent("%4".into())),
        ("nbd://[::1/a", E::Host("[::1".into())),
        ("nbd://[::1]x/a", E::Host("[::1]x".into())),
        ("nbd://[h]/a", E::Host("h".into())),
        ("nbd://h:0/", E::Port("0".into())),
        ("nbd://h:+1/", E::Port("+1".into())),
        ("nbd://h:65536/", E::Port("65536".into())),
        ("nbd://u@h/", E::User("u".into())),
        ("nbd+unix:///a", E::NoSocket),
        ("nbd+unix:///a?socket=", E::NoSocket),
        ("nbd+unix://h/a?socket=s", E::HostAndSocket),
        ("nbd://h/a?socket=s", E::HostAndSocket),
        ("nbd+unix:///a?socket=%00s", E::AbstractSocket),
        ("nbd://h/%00", E::Export("%00".into())),
        ("nbd://h/%ff", E::Export("%ff".into())),
        ("nbd://h/a?x=1", parameter("x=1")),
        ("nbd+unix:///?socket=a&socket=b", parameter("socket=b")),
        ("nbds://h/?tls-type=psk", parameter("tls-type=psk")),
        ("nbds://h/?tls-verify-peer=0", parameter("tls-verify-peer=0")),
        ("nbd://h/?tls-hostname=x", E::NeedsTls("tls-hostname=x".into())),
    ] {
        assert_eq!(Address::parse(text).expect_err(text), error, "{text}");
    }
    let long = format!("nbd://h/{}", "a".repeat(MAX_NAME + 1));
    assert!(matches!(Address::parse(&long), Err(E::Export(_))));
}

proptest! {
    #[test]
    fn what_is_displayed_is_read_back(
        host in "[a-z0-9.-]{1,12}",
        port in 1_u16..,
        export in "\\PC{0,20}",
        path in proptest::collection::vec(1_u8.., 1..20),
        secure in any::<bool>(),
        unix in any::<bool>(),
    ) {
        let place = match unix {
            true => Place::Unix(OsString::from_vec(path.clone()).into()),
            false => Place::Tcp { host, port },
        };
        let wish =
            TlsWish { authorities: Some(OsString::from_vec(path).into()), hostname: None };
        let address = Address { place, export, tls: secure.then_some(wish) };
        prop_assert_eq!(Address::parse(&address.to_string()).unwrap(), address);
    }

    #[test]
    fn no_text_is_too_much(text in "(nbds?(\\+unix)?://)?\\PC{0,40}") {
        if let Ok(address) = Address::parse(&text) {
            prop_assert_eq!(Address::parse(&address.to_string()).unwrap(), address);
        }
    }
}
