package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"
)

// isTerminal tells whether a person reads what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// harmless is text without the control characters with which a stranger's text
// could steer a terminal; line feeds and tabs stay.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// oneLine is the first line of text that says something, harmless, of at most n
// characters.
func oneLine(text string, n int) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = harmless(strings.ReplaceAll(strings.TrimSpace(line), "\t", " "))
	if runes := []rune(line); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return line
}

// table writes rows in columns.
func table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return tw.Flush()
}

// progress shows how far a call is: as a bar that is drawn over on a terminal,
// as lines elsewhere.
type progress struct {
	w     io.Writer
	bar   bool
	drawn int // characters of the bar on the screen
}

func newProgress(w io.Writer) *progress { return &progress{w: w, bar: isTerminal(w)} }

// show draws one report; total is 0 where nobody knows it.
func (p *progress) show(done, total float64, message string) {
	message = oneLine(message, 60)
	if !p.bar {
		line := fmt.Sprintf("progress %g", done)
		if total > 0 {
			line += fmt.Sprintf("/%g", total)
		}
		fmt.Fprintln(p.w, strings.TrimSpace(line+" "+message))
		return
	}
	line := fmt.Sprintf("%g %s", done, message)
	if total > 0 {
		const width = 30
		share := min(max(done/total, 0), 1)
		full := int(share * width)
		line = fmt.Sprintf("[%s%s] %3.0f%% %s", strings.Repeat("#", full), strings.Repeat(".", width-full), share*100, message)
	}
	p.draw(line)
}

// line writes a whole line, above the bar if there is one.
func (p *progress) line(text string) {
	p.clear()
	fmt.Fprintln(p.w, text)
}

// clear takes the bar off the screen.
func (p *progress) clear() {
	if p.drawn > 0 {
		p.draw("")
		fmt.Fprint(p.w, "\r")
	}
}

func (p *progress) draw(line string) {
	n := len([]rune(line))
	fmt.Fprintf(p.w, "\r%s%s", line, strings.Repeat(" ", max(0, p.drawn-n)))
	p.drawn = n
}
