//! Formats numbers with three significant digits and separated thousands.

/// `0`, `0.123`, `12.3`, `1,234`.
pub(super) fn figure(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        "-".into()
    } else if magnitude >= 99.95 {
        thousands(value)
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.9995 {
        format!("{value:.2}")
    } else if magnitude >= 0.0005 {
        format!("{value:.3}")
    } else {
        "0".into()
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn three_digits_are_enough() {
        let cases = [
            (0.0, "0"),
            (0.00001, "0"),
            (0.0123, "0.012"),
            (1.0, "1.00"),
            (9.999, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (999.6, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
            (f64::NAN, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }
}
