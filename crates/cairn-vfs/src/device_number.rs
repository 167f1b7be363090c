//! Numbers of devices, in Linux's 32-bit `dev_t` (`new_encode_dev`): bits 0 to 7 of the minor
//! number, the 12 bits of the major one, the other 12 bits of the minor one.

/// A device's number. `None` if Linux cannot encode it: the greatest is 4095:1048575.
#[must_use]
pub const fn encode_device(major: u32, minor: u32) -> Option<u32> {
    if major > 0xfff || minor > 0xf_ffff {
        return None;
    }
    Some((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

/// Major and minor number of a device.
#[must_use]
pub const fn decode_device(number: u32) -> (u32, u32) {
    ((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xf_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_or_are_refused() {
        for (major, minor) in [(0, 0), (8, 1), (259, 70_000), (4095, 0xf_ffff)] {
            assert_eq!(encode_device(major, minor).map(decode_device), Some((major, minor)));
        }
        assert_eq!(encode_device(1, 3), Some(0x103));
        assert_eq!(encode_device(8, 257), Some(0x10_0801));
        assert_eq!((encode_device(4096, 0), encode_device(0, 0x10_0000)), (None, None));
    }
}
