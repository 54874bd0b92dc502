// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Text for people: numbers, and lines of a given width. Widths are counted in code points.
namespace hostrange {

// Names come from the target: nothing in them may speak to the terminal. Control characters become question marks, and
// without utf8 everything that is not ASCII.
std::string printable(std::string_view text, bool utf8);

std::size_t columns_of(std::string_view text);
std::string padded_left(std::string_view text, std::size_t width);   // spaces before it
std::string padded_right(std::string_view text, std::size_t width);  // spaces after it

// At most `width` columns; what was cut off is marked.
std::string shortened(const std::string& text, std::size_t width, bool utf8);

// One paragraph, ended by a newline: `mark`, then the words, further lines indented by its width. Width 0: one line.
std::string wrapped(std::string_view text, std::string_view mark, std::size_t width);

// -1234567.8 -> "-1,234,567.8"
std::string with_separators(const std::string& number);
std::string with_separators(std::uint64_t number);

// "1 scope", "2,000 scopes"; `many` is the plural where it is not the word and an s.
std::string counted(std::uint64_t count, std::string_view word);
std::string counted(std::uint64_t count, std::string_view one, std::string_view many);
std::string scaled(double duration_ns);  // "12 ns", "1.5 us", "20.0 ms", "3.0 s"

}  // namespace hostrange
