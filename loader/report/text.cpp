// SPDX-License-Identifier: Apache-2.0
#include "loader/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hostrange {
namespace {

// The second and further bytes of a character.
bool continues(char byte) {
    return (byte & 0xc0) == 0x80;
}

}  // namespace

std::string printable(std::string_view text, bool utf8) {
    std::string result(text);
    for (std::size_t i = 0; i < result.size(); ++i) {
        const auto byte = static_cast<unsigned char>(result[i]);
        // U+0080 to U+009F are control characters too.
        const bool is_c1 = byte == 0xc2 && i + 1 < result.size() && static_cast<unsigned char>(result[i + 1]) < 0xa0;
        if (byte < 0x20 || byte == 0x7f || is_c1 || (byte >= 0x80 && !utf8)) result[i] = '?';
        if (is_c1) result[++i] = '?';
    }
    return result;
}

std::size_t columns_of(std::string_view text) {
    return text.size() - std::count_if(text.begin(), text.end(), continues);
}

std::string padded_left(std::string_view text, std::size_t width) {
    const std::size_t columns = columns_of(text);
    return std::string(width - std::min(width, columns), ' ').append(text);
}

std::string padded_right(std::string_view text, std::size_t width) {
    const std::size_t columns = columns_of(text);
    return std::string(text).append(width - std::min(width, columns), ' ');
}

std::string shortened(const std::string& text, std::size_t width, bool utf8) {
    if (columns_of(text) <= width) return text;
    std::size_t end = 0;
    for (std::size_t columns = 0; end < text.size(); ++end) {
        if (!continues(text[end]) && ++columns == width) break;
    }
    return text.substr(0, end) + (utf8 ? "…" : "~");
}

std::string wrapped(std::string_view text, std::string_view mark, std::size_t width) {
    const std::string indent(columns_of(mark), ' ');
    std::string result(mark);
    std::size_t columns = indent.size();
    bool is_first = true;  // on its line
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        const std::string_view word = text.substr(begin, end - begin);
        if (!is_first && width != 0 && columns + 1 + columns_of(word) > width) {
            result += "\n" + indent;
            columns = indent.size();
            is_first = true;
        }
        if (!is_first) {
            result += ' ';
            ++columns;
        }
        result += word;
        columns += columns_of(word);
        is_first = false;
        begin = end + 1;
    }
    return result + "\n";
}

std::string with_separators(const std::string& number) {
    const std::size_t first = number.starts_with('-') ? 1 : 0;
    std::string result = number;
    for (std::size_t place = std::min(number.find('.'), number.size()); place > first + 3;) {
        result.insert(place -= 3, 1, ',');
    }
    return result;
}

std::string with_separators(std::uint64_t number) {
    return with_separators(std::to_string(number));
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
    return fmt::format("{} {}", with_separators(count), count == 1 ? one : many);
}

std::string counted(std::uint64_t count, std::string_view word) {
    return counted(count, word, std::string(word) + "s");
}

std::string scaled(double duration_ns) {
    const double magnitude = std::abs(duration_ns);
    if (magnitude < 1e3) return fmt::format("{:.0f} ns", duration_ns);
    if (magnitude < 1e6) return fmt::format("{:.1f} us", duration_ns / 1e3);
    if (magnitude < 1e9) return fmt::format("{:.1f} ms", duration_ns / 1e6);
    return with_separators(fmt::format("{:.1f}", duration_ns / 1e9)) + " s";
}

}  // namespace hostrange
