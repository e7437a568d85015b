//! Ranges of addresses, as in `10.0.0.0/8` and `fd00::/8`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses that begin with the same bits.
///
/// ```
/// use sluicegate_server::settings::Cidr;
///
/// let range = Cidr::parse("10.0.0.0/8").unwrap();
/// assert_eq!((range.network().to_string(), range.prefix()), ("10.0.0.0".to_owned(), 8));
/// assert!(range.contains("10.1.2.3".parse().unwrap()));
/// assert!(range.contains("::ffff:10.1.2.3".parse().unwrap()), "the same address, in IPv6");
/// assert!(!range.contains("11.0.0.1".parse().unwrap()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// 127.0.0.0/8
    pub(super) const LOOPBACK: Cidr =
        Cidr { network: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 };

    /// Reads `ADDRESS/BITS`, or an address that stands for itself alone.
    ///
    /// # Errors
    ///
    /// When it is neither, or when the address has bits behind the prefix: then it is not clear
    /// whether the range or the address was meant.
    pub fn parse(text: &str) -> Result<Self, CidrInvalid> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| CidrInvalid::Malformed)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match bits {
            None => most,
            Some(bits) if bits.chars().all(|c| c.is_ascii_digit()) => {
                let prefix: u8 = bits.parse().map_err(|_| CidrInvalid::Prefix { most })?;
                if prefix > most {
                    return Err(CidrInvalid::Prefix { most });
                }
                prefix
            }
            Some(_) => return Err(CidrInvalid::Malformed),
        };
        let range = Self { network: cut(address, prefix), prefix };
        if range.network == address { Ok(range) } else { Err(CidrInvalid::HostBits { range }) }
    }

    /// The first address of the range.
    #[must_use]
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// How many bits all its addresses share: at most 32, or 128 in IPv6.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether an address is in the range. An IPv4 address mapped into IPv6 counts as what it is.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let same_kind = |address: IpAddr| address.is_ipv4() == self.network.is_ipv4();
        [address, address.to_canonical()]
            .into_iter()
            .any(|address| same_kind(address) && cut(address, self.prefix) == self.network)
    }
}

/// The address with all bits behind the prefix zero.
fn cut(address: IpAddr, prefix: u8) -> IpAddr {
    let kept = u32::from(prefix);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - kept).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - kept).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a text is no range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CidrInvalid {
    /// Not an address, or not a number after the slash.
    Malformed,
    /// More bits than an address has.
    Prefix {
        /// How many it has.
        most: u8,
    },
    /// The address has bits behind the prefix.
    HostBits {
        /// The range around that address.
        range: Cidr,
    },
}

impl fmt::Display for CidrInvalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => write!(f, "must be a range of addresses such as 10.0.0.0/8"),
            Self::Prefix { most } => write!(f, "must have at most {most} bits after the slash"),
            Self::HostBits { range } => {
                write!(f, "has bits set behind its prefix: the range is {range}")
            }
        }
    }
}

impl std::error::Error for CidrInvalid {}

#[cfg(test)]
mod tests {
    use super::Cidr;

    #[test]
    fn ranges_are_read_and_shown() {
        let cases = [
            ("127.0.0.0/8", "127.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("::1", "::1/128"),
            ("fd00::/8", "fd00::/8"),
            ("::/0", "::/0"),
            ("10.1.2.3/8", "has bits set behind its prefix: the range is 10.0.0.0/8"),
            ("10.0.0.0/33", "must have at most 32 bits after the slash"),
            ("fd00::/129", "must have at most 128 bits after the slash"),
            ("10.0.0.0/999", "must have at most 32 bits after the slash"),
            ("10.0.0.0/+8", "must be a range of addresses such as 10.0.0.0/8"),
            ("10.0.0.0/", "must have at most 32 bits after the slash"),
            ("10.0.0/8", "must be a range of addresses such as 10.0.0.0/8"),
            ("example/8", "must be a range of addresses such as 10.0.0.0/8"),
            ("", "must be a range of addresses such as 10.0.0.0/8"),
        ];
        for (text, shown) in cases {
            let read = Cidr::parse(text);
            assert_eq!(read.map_or_else(|e| e.to_string(), |c| c.to_string()), shown, "{text}");
        }
    }

    #[test]
    fn membership_goes_by_the_prefix() {
        let cases = [
            ("10.0.0.0/8", "10.255.255.255", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8", "::10.0.0.1", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.2", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fc00::1", false),
            ("::ffff:0:0/96", "::ffff:10.0.0.1", true),
            ("::/0", "10.0.0.1", false),
        ];
        for (range, address, inside) in cases {
            let range = Cidr::parse(range).unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), inside, "{range} {address}");
        }
    }
}
