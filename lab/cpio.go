package lab

import (
	"bytes"
	"fmt"
)

// cpio is an archive as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst).
type cpio struct {
	out   bytes.Buffer
	inode int
}

func (c *cpio) dir(name string) { c.entry(name, nil, 0o040755) }

func (c *cpio) file(name string, data []byte, mode int) { c.entry(name, data, 0o100000|mode) }

func (c *cpio) entry(name string, data []byte, mode int) {
	c.inode++
	fmt.Fprintf(&c.out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", c.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	c.out.WriteString(name + "\x00")
	c.pad()
	c.out.Write(data)
	c.pad()
}

func (c *cpio) pad() {
	for c.out.Len()%4 != 0 {
		c.out.WriteByte(0)
	}
}

func (c *cpio) end() []byte {
	c.entry("TRAILER!!!", nil, 0)
	return c.out.Bytes()
}
