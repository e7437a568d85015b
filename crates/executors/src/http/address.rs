//! Which addresses a target may have.
//!
//! Public ones, always. All others only where a range of `allow_targets` holds them. IPv6 is
//! public only where it has been given out (2000::/3), so a range that gets a meaning later is
//! refused until someone has thought about it. Never those where the caller itself listens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use parking_lot::RwLock;
use sluicegate_dispatch::Target;

/// An address that is not allowed, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forbidden {
    /// It is in no range that is allowed.
    Special { address: IpAddr, kind: &'static str },
    /// It is the caller's own: a call there could bring the next one about, and so on.
    Own(SocketAddr),
}

/// Where the program that makes the calls listens itself. Clones are the same.
///
/// ```
/// use sluicegate_executors::http::OwnAddresses;
///
/// let own = OwnAddresses::default();
/// own.add("0.0.0.0:8080".parse()?);
/// assert!(own.are("[::1]:8080".parse()?));
/// assert!(!own.are("127.0.0.1:8081".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OwnAddresses(Arc<RwLock<Vec<SocketAddr>>>);

impl OwnAddresses {
    /// Adds the address that a listener was bound to.
    pub fn add(&self, bound: SocketAddr) {
        let mut all = self.0.write();
        if !all.contains(&bound) {
            all.push(bound);
        }
    }

    /// Whether a connection to that address would come in here.
    ///
    /// Loopback is one place: `127.0.0.1` and `::1`. What listens on all addresses of the machine listens on all of
    /// loopback; which other addresses the machine has is only seen when one is connected to.
    #[must_use]
    pub fn are(&self, address: SocketAddr) -> bool {
        let ip = place(address.ip());
        self.0.read().iter().any(|own| {
            let is_there = match own.ip() {
                bound if bound.is_unspecified() => ip.is_loopback(),
                bound => ip == place(bound),
            };
            is_there && own.port() == address.port()
        })
    }

    /// Whether a connection has come in here: both ends are on this machine, which listens there on all its addresses.
    pub(crate) fn have(&self, near: SocketAddr, far: SocketAddr) -> bool {
        near.ip().to_canonical() == far.ip().to_canonical()
            && self.0.read().iter().any(|own| own.ip().is_unspecified() && own.port() == far.port())
    }
}

/// An address in the one form in which places are compared.
fn place(address: IpAddr) -> IpAddr {
    let plain = address.to_canonical();
    match embedded(plain).map_or(plain, IpAddr::V4) {
        // What is dialled without an address is dialled on this machine.
        ip if ip.is_unspecified() || ip == IpAddr::V6(Ipv6Addr::LOCALHOST) => {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        }
        ip => ip,
    }
}

/// Why a target may not be called, as far as its URL alone says: it names a forbidden address.
///
/// Names are looked up when they are called, and not before; `localhost` needs no looking up.
#[must_use]
pub fn target_forbidden(target: &Target, allow: &[IpNet], own: &OwnAddresses) -> Option<String> {
    let authority = target.authority();
    let host = host_of(authority);
    let address = literal(host).or_else(|| {
        let is_local = host.trim_end_matches('.').eq_ignore_ascii_case("localhost");
        is_local.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    })?;
    let default = if target.is_secure() { 443 } else { 80 };
    let port = port_of(authority).unwrap_or(default);
    forbidden(SocketAddr::new(address, port), allow, own).map(|forbidden| forbidden.to_string())
}

/// What is wrong with an address, unless it is public or allowed, and not the caller's own.
pub(crate) fn forbidden(
    address: SocketAddr,
    allow: &[IpNet],
    own: &OwnAddresses,
) -> Option<Forbidden> {
    not_allowed(address.ip(), allow).or_else(|| own.are(address).then_some(Forbidden::Own(address)))
}

fn not_allowed(address: IpAddr, allow: &[IpNet]) -> Option<Forbidden> {
    let plain = address.to_canonical();
    let kind = special(plain)?;
    // Loopback is one place, whatever family: `localhost` mostly has an address of each.
    let loopback = (plain == IpAddr::V6(Ipv6Addr::LOCALHOST)).then_some(Ipv4Addr::LOCALHOST);
    let within = embedded(plain).or(loopback).map(IpAddr::V4);
    let allowed = |net: &IpNet| {
        [Some(address), Some(plain), within].into_iter().flatten().any(|ip| net.contains(&ip))
    };
    (!allow.iter().any(allowed)).then_some(Forbidden::Special { address, kind })
}

/// The host of an authority, without its port and without brackets.
pub(crate) fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

/// The port of an authority, if it is written.
fn port_of(authority: &str) -> Option<u16> {
    authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

/// The address that a host is, in any of the spellings that resolvers take for one: fewer than four
/// parts, octal, hexadecimal.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    host.parse().ok().or_else(|| odd_spelling(host).map(IpAddr::V4))
}

/// An IPv4 address as `inet_aton` reads it: the last part fills the bytes that are left.
fn odd_spelling(host: &str) -> Option<Ipv4Addr> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let parts: Vec<u64> = host.split('.').take(5).map(part).collect::<Option<_>>()?;
    let (last, front) = parts.split_last()?;
    let left = 4usize.checked_sub(front.len()).filter(|left| *left > 0)?;
    if front.iter().any(|byte| *byte > 0xff) || *last >= 1 << (8 * left) {
        return None;
    }
    let high = front.iter().fold(0u64, |all, byte| all << 8 | byte);
    u32::try_from(high << (8 * left) | last).ok().map(Ipv4Addr::from)
}

fn part(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if lower.len() > 1 && lower.starts_with('0') => (&lower[1..], 8),
        None => (lower.as_str(), 10),
    };
    // `from_str_radix` takes a sign; a part of an address has none.
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| u64::from_str_radix(digits, radix).ok())?
}

/// What an address is, unless it is public.
fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let kind = match ip.octets() {
        [0, ..] => "unspecified",
        [127, ..] => "loopback",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "private",
        [100, 64..=127, ..] => "shared by a carrier",
        [169, 254, 169, 254] => "a metadata service",
        [169, 254, ..] => "link-local",
        [192, 0, 0, _] | [192, 88, 99, _] => "reserved",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "for documentation",
        [198, 18..=19, ..] => "for benchmarks",
        [224..=239, ..] => "multicast",
        [255, 255, 255, 255] => "broadcast",
        [240..=255, ..] => "reserved",
        _ => return None,
    };
    Some(kind)
}

fn special_v6(ip: Ipv6Addr) -> Option<&'static str> {
    if let Some(v4) = embedded(ip.into()) {
        return special_v4(v4);
    }
    let kind = match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254] => "a metadata service",
        [0xfc00..=0xfdff, ..] => "private",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xfec0..=0xfeff, ..] => "site-local",
        [0xff00..=0xffff, ..] => "multicast",
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => "for documentation",
        [0x2001, 0..=0x01ff, ..] => "reserved",
        [0x2000..=0x3fff, ..] => return None,
        _ => "reserved",
    };
    Some(kind)
}

/// The IPv4 address that a gateway would send it to: NAT64 and 6to4.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return None };
    let join = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match v6.segments() {
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

impl std::fmt::Display for Forbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Special { address, kind } => {
                write!(f, "the address {address} is {kind} and no range of allow_targets holds it")
            }
            Self::Own(address) => {
                write!(f, "{address} is where this daemon itself listens: it would call itself")
            }
        }
    }
}
