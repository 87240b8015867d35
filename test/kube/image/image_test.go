package image

import (
	"io"
	"strings"
	"testing"
)

// An image has no libraries: a program that needs some fails in a container, with a misleading message.
func TestDynamicProgram(t *testing.T) {
	err := Write(io.Discard, Image{Name: "x:1", Programs: []string{"/bin/sh"}})
	if err == nil || !strings.Contains(err.Error(), "/bin/sh: expected a static program") {
		t.Error(err)
	}
}
