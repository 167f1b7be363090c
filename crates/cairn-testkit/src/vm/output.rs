//! What a run of a machine leaves: its exit status and what was printed.

/// What a machine said.
#[derive(Clone, Debug)]
pub struct Output {
    /// The script's exit status; `None` if it did not come to its end.
    pub status: Option<i32>,
    /// What the script printed, on both streams.
    pub text: String,
    /// What the kernel printed.
    pub console: String,
}

impl Output {
    /// Everything, for a failed assertion.
    #[must_use]
    pub fn describe(&self) -> String {
        let status =
            self.status.map_or("did not end".to_owned(), |status| format!("exited with {status}"));
        format!(
            "the script {status}\n--- script ---\n{}\n--- kernel ---\n{}",
            self.text, self.console
        )
    }
}
