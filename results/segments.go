package results

// Segments are those of TCP that left one side and came to the other, as the kernel counts them at both. What
// it has joined or split on the way counts as segments.
type Segments struct {
	Way   string `json:"way"`  // there is to the application, or through it; back is to the client
	Sent  uint64 `json:"sent"` // with those sent again
	Again uint64 `json:"sentAgain,omitempty"`
	Got   uint64 `json:"got"`
	// Dropped is who says on the way that packets were dropped, and how many: at most, for these may be others'.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}

// joined is how many segments may be joined in a packet at most: of the least size in 64 KiB (RFC 9293,
// 3.7.1).
const joined = 65536 / 536

// Unnamed are the lost ones that nobody says to have dropped. A packet that was dropped may have been many
// segments.
func (s Segments) Unnamed() uint64 {
	lost := s.Sent - min(s.Sent, s.Got)
	for _, n := range s.Dropped {
		lost -= min(lost, n*joined)
	}
	return lost
}
