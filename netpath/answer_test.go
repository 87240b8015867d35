package netpath

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/lane"
)

// An answer that came in time is found also where this process got its CPU only after it.
func TestAnswerReadLate(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range ends {
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	s, address := segment{fd: ends[0]}, lane.Address{Prefix: netip.MustParsePrefix("198.18.7.9/24")}
	late := time.Now().Add(-time.Millisecond)
	if who, _, aerr := s.answer(t.Context(), late, []lane.Address{address}); who.IsValid() || aerr != nil {
		t.Errorf("without an answer: %v, %v", who, aerr)
	}
	mac := []byte{2, 0x15, 7, 0, 0, 1}
	frame := slices.Concat(make([]byte, 6), mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 2}, mac, address.Addr().AsSlice(), make([]byte, 20))
	if _, err = unix.Write(ends[1], frame); err != nil {
		t.Fatal(err)
	}
	if who, from, aerr := s.answer(t.Context(), late, []lane.Address{address}); who != address.Addr() || !slices.Equal(from, mac) || aerr != nil {
		t.Errorf("answered: %v by %v, %v", who, from, aerr)
	}
}
