package results

// Segments are the TCP segments that left one side and reached the other, as the kernel counts them at both.
// What the kernel joins or splits on the way counts as segments.
type Segments struct {
	Way   string `json:"way"`  // there: to the application, or through it; back: to the client
	Sent  uint64 `json:"sent"` // retransmissions included
	Again uint64 `json:"sentAgain,omitempty"`
	Got   uint64 `json:"got"`
	// Dropped has, by who reports them, the packets that were dropped on the way. They are upper bounds, because
	// packets of others may be among them.
	Dropped map[string]uint64 `json:"dropped,omitempty"`
}

// maxSegmentsPerPacket is how many segments one packet may contain: segments of the smallest size in 64 KiB
// (RFC 9293, 3.7.1).
const maxSegmentsPerPacket = 65536 / 536

// Unnamed returns how many lost segments nobody reports as dropped. A dropped packet may have been many
// segments.
func (s Segments) Unnamed() uint64 {
	lost := s.Sent - min(s.Sent, s.Got)
	for _, n := range s.Dropped {
		lost -= min(lost, n*maxSegmentsPerPacket)
	}
	return lost
}
