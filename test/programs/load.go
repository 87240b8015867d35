package main

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"time"
)

// spin keeps n goroutines busy for ever.
func spin(n int) {
	for range n - 1 {
		go work()
	}
	work()
}

// work computes until the process ends.
func work() {
	h := fnv.New64()
	for block := make([]byte, 4096); ; {
		_, _ = h.Write(block) // it never fails
	}
}

func forever(addr string, ask func(string) error) {
	for {
		if err := ask(addr); err != nil {
			<-time.After(100 * time.Millisecond) // not there yet
		}
	}
}

// client sends requests for ever, on so many connections that each worker has some.
func client(port, n int, ask func(addr string) error) {
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	for range 8*n - 1 {
		go forever(addr, ask)
	}
	forever(addr, ask)
}

// askHTTP makes a web server compress its text.
func askHTTP() func(string) error {
	c := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1 << 10}}
	return func(addr string) error {
		request, err := http.NewRequest(http.MethodGet, "http://"+addr+"/text", nil) // it ends with the process
		if err != nil {
			return err
		}
		request.Header.Set("Accept-Encoding", "gzip")
		answer, err := c.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
}

// askMemcache asks for thousands of missing keys, without waiting for the answers.
func askMemcache(addr string) error {
	c, err := net.Dial("tcp", addr) // it ends with the process
	if err != nil {
		return err
	}
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
	batch := bytes.Repeat([]byte("get a\r\n"), 8192)
	for {
		if _, err = c.Write(batch); err != nil {
			return err
		}
	}
}
