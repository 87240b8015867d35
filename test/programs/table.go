package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// program is a real program that keeps a given number of threads busy. In the commands {n} is that number,
// {dir} a folder for its files, {port} a free TCP port, and {self} this program.
type program struct {
	name    string
	inside  string // command in the lane
	outside string // command beside the lane that loads it
	files   func(dir string, values *strings.Replacer) error
}

// table returns all programs with which lanes are tried.
func table() []program {
	return []program{
		{name: "nginx", inside: "nginx -e stderr -p {dir} -c {dir}/nginx.conf",
			outside: "env GOMAXPROCS=1 {self} http {port} {n}", files: website},
		{name: "memcached", inside: "memcached -u root -l 127.0.0.1 -p {port} -t {n}",
			outside: "env GOMAXPROCS=1 {self} memcache {port} {n}"},
		{name: "go", inside: "env GOMAXPROCS={n} {self} spin {n}"},
		{name: "python", inside: "python3 {dir}/busy.py", files: script},
		{name: "stress-ng", inside: "stress-ng --quiet --cpu {n}"},
		{name: "iperf3", inside: "sh {dir}/streams", files: streams},
		{name: "qemu", inside: "qemu-system-x86_64 -accel tcg,thread=multi -name box,debug-threads=on" +
			" -nodefaults -display none -m 16 -smp {n} -bios {dir}/bios", files: firmware},
	}
}

// website is what nginx compresses for each request, so that its workers are busier than the clients.
func website(dir string, values *strings.Replacer) error {
	random := rand.New(rand.NewPCG(1, 2))
	var text bytes.Buffer
	for text.Len() < 1<<20 {
		fmt.Fprintln(&text, random.Uint64())
	}
	conf := values.Replace(`daemon off; user root; worker_processes {n}; pid {dir}/pid; error_log stderr;
events { worker_connections 512; }
http {
	access_log off; gzip on; gzip_comp_level 9; gzip_types *;
	client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;
	uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
	server { listen 127.0.0.1:{port} reuseport; root {dir}; }
}
`)
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(conf), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "text"), text.Bytes(), 0o600)
}

// script makes Python work in processes, because its threads take turns.
func script(dir string, values *strings.Replacer) error {
	return os.WriteFile(filepath.Join(dir, "busy.py"), []byte(values.Replace(`import os
for i in range({n} - 1):
    if os.fork() == 0:
        break
while True:
    pass
`)), 0o600)
}

// streams puts both ends of iperf3 into the lane: since 3.16 each has a thread for each stream, before only
// one. Both send, because an end that only receives is idle for some of the time.
func streams(dir string, values *strings.Replacer) error {
	return os.WriteFile(filepath.Join(dir, "streams"), []byte(values.Replace(`iperf3 -s -i 0 -p {port} &
until iperf3 -c 127.0.0.1 -p {port} -P {n} --bidir -t 600 -i 0; do sleep 0.1; done
`)), 0o600)
}

// firmware is a BIOS that wakes all virtual CPUs to spin: 64 KiB, at 0xf0000 and at the end of 4 GiB.
func firmware(dir string, _ *strings.Replacer) error {
	image := make([]byte, 1<<16)
	copy(image, "\xeb\xfe")                                 // where the others start: jmp .
	copy(image[0xfff0:], "\xea\x00\x01\x00\xf0")            // where the first starts: jmp 0xf000:0x0100
	copy(image[0x180:], "\x0f\x00\x90\x01\x0f\x00")         // a descriptor table of 16 bytes at 0xf0190:
	copy(image[0x198:], "\xff\xff\x00\x00\x00\x92\xcf\x00") // 8 is all memory
	copy(image[0x100:], "\xfa\x2e\x66\x0f\x01\x16\x80\x01"+ // cli; lgdt cs:[0x180]
		"\x0f\x20\xc0\x0c\x01\x0f\x22\xc0"+ // enter protected mode, CR0.PE
		"\xbb\x08\x00\x8e\xdb\x24\xfe\x0f\x22\xc0"+ // mov ds,8, which stays so when that mode is left
		"\x67\x66\xc7\x05\x00\x03\xe0\xfe\x00\x45\x0c\x00"+ // the local APIC: INIT to all others
		"\xb9\x00\x00\xe2\xfe"+ // wait
		"\x67\x66\xc7\x05\x00\x03\xe0\xfe\xf0\x46\x0c\x00\xeb\xfe") // start them at 0xf0000, and jmp .
	return os.WriteFile(filepath.Join(dir, "bios"), image, 0o600)
}

// values replaces {…} in commands and files.
func values(dir, self string, port, n int) *strings.Replacer {
	return strings.NewReplacer("{n}", strconv.Itoa(n), "{dir}", dir, "{port}", strconv.Itoa(port),
		"{self}", self)
}
