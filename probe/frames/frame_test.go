package frames

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
)

func someEnds() Ends {
	return Ends{net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2},
		netip.MustParseAddrPort("198.18.4.1:40000"), netip.MustParseAddrPort("198.18.4.2:7009")}
}

// The forwarder makes of a frame what the other end would have sent, except for the time to live.
func TestTurn(t *testing.T) {
	e := someEnds()
	b := e.Blank(64)
	stamp(b, isFrame, 1<<40+7, -1)
	back := Ends{e.ToMAC, e.FromMAC, e.To, e.From}.Blank(64)
	stamp(back, isFrame, 1<<40+7, -1)
	if !turn(b) {
		t.Fatal("it was not forwarded")
	}
	if s, ok := read(b); !ok || s != (stamped{isFrame, 1<<40 + 7, -1, 64}) {
		t.Errorf("%+v, %v", s, ok)
	}
	if b[atTTL] != ttl-1 || sum(b[atIP:atUDP]) != 0xffff {
		t.Errorf("time to live %d, checksum %#x", b[atTTL], sum(b[atIP:atUDP]))
	}
	copy(b[atTTL:atSource], back[atTTL:])
	if !bytes.Equal(b, back) {
		t.Errorf("\n%x, want\n%x", b, back)
	}
}

// Any frame is parsed or rejected. A forwarded frame stays correct, up to its last hop.
func FuzzFrame(f *testing.F) {
	good := someEnds().Blank(64)
	stamp(good, isFrame, 1, 2)
	f.Add(good)
	f.Add(good[:atMagic])
	question := someEnds().Blank(questionSize)
	stamp(question, isAnswer, 1, 2)
	f.Add(question)
	f.Fuzz(func(t *testing.T, given []byte) {
		b := bytes.Clone(given)
		s, ok := read(b)
		if ok && (s.size > len(b)+fcs || s.size < minSize) {
			t.Fatalf("%d bytes read in %d", s.size, len(b))
		}
		if ok && len(b) >= questionSize-fcs {
			readAnswer(b)
		}
		for hops := 0; turn(b); hops++ {
			if _, right := packet(b); !right || hops > 255 {
				t.Fatalf("after %d hops: %x", hops, b)
			}
		}
	})
}
